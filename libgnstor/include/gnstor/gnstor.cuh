// SPDX-License-Identifier: Apache-2.0 OR MIT
// libgnstor for kernels (paper 4.4): buffers, batched I/O in the four stages of the paper's figure 7, and
// blocking reads and writes.
//
//   GN_DEV void body(args& a, gn_u32 block, gn_u32 blocks) {   // a.f: gn::file, from gn_device_file
//     gn::file& f = a.f;
//     gn::batch& b = *(gn::batch*)gn::smem();     // shared memory, gn::batch_bytes(blockDim.x)
//     gn::batch_init(b);                          // all threads of the block
//     auto x = gn::read_request(f, vba, blocks, buffer, f.pool_key());
//     while (gn::batch_busy(b)) {                 // warp by warp, all 32 lanes together
//       gn::submit(b, f, x);                      //   builds commands; nothing is sent yet
//       gn::commit(b, f, x);                      //   appends them: one doorbell an SSD
//       gn::poll(f);                              //   takes completions
//       if (gn::dispatch(b, f, x)) use(x.status); //   this thread's request has ended
//     }
//   }
//   GN_CLIENT(kernel, args, body)                 // gn_launch runs it beside the HCA's agent
//
// When a request has ended, plain loads of the thread that took its end from `dispatch`, or waited for it,
// see the data. Others see it behind a __syncwarp, a __syncthreads or a release of that thread's.
//
// Every function that says so is called by all 32 lanes of a warp together; a lane without a request takes
// part too. Every loop has a deadline: a request that passes it ends with GN_TIMED_OUT. Its buffer is not
// used again, as data may still come into it. Give a buffer of the pool back as usual: the pool does not hand
// out its memory before the late completion has come. Do not use memory of your own for something else until
// a drain.
#pragma once
#include "gnstor/batch.cuh"
#include "gnstor/blocking.cuh"
#include "gnstor/callbacks.cuh"
#include "gnor/kernel.cuh"
