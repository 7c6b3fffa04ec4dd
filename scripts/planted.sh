# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by the scripts/planted-* scripts, which name mistakes and the test that must find each.
#
# A mistake is a line of fields with ~ between them:
#   what is wrong ~ file ~ text ~ its replacement ~ arguments of cargo test ~ the test that finds it
# First each of these tests must pass on the unchanged files. Each mistake is planted by itself in a copy of
# the tracked files, in the folder `planted` of the target folder.
# `CARGO_TARGET_DIR` names another target folder, so that other builds need not wait.
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
copy=$target/planted/copy
log=$target/planted/log
# A test that hangs by the mistake is ended, and has found it.
export GNSTOR_TEST_DEADLINE_S=60
last=
mkdir -p "$copy"

# Copies the files as they are. Their times are old ones: what was planted last is touched, or cargo would
# take the crate with that mistake for built.
restore() {
  git ls-files -z | tar --null --ignore-failed-read -T - -cf - | tar -xf - -C "$copy"
  [ -z "$last" ] || touch "$copy/$last"
}

# Plants one mistake; fails where its test passes, or there is no verdict.
plant() {
  local number=$1 what file from into where test start
  IFS='~' read -r what file from into where test <<<"$2"
  restore
  last=$file
  FROM=$from INTO=$into python3 - "$copy/$file" <<'PY' || { echo "$number DOES NOT APPLY: $what"; return 1; }
import os, sys
path, text, into = sys.argv[1], os.environ["FROM"], os.environ["INTO"]
code = open(path).read()
if text not in code:
    sys.exit(f"{path} has no: {text}")
open(path, "w").write(code.replace(text, into, 1))
PY
  start=$SECONDS
  # shellcheck disable=SC2086
  if ! (cd "$copy" && CARGO_TARGET_DIR=$target cargo test --quiet $where --no-run) >"$log" 2>&1; then
    echo "$number DOES NOT BUILD: $what"
    tail -n 20 "$log"
    return 1
  fi
  local built=$((SECONDS - start))
  start=$SECONDS
  # shellcheck disable=SC2086
  if (cd "$copy" && CARGO_TARGET_DIR=$target timeout 300 cargo test $where "$test") >"$log" 2>&1; then
    grep -qE '^running [1-9]' "$log" || { echo "$number NO SUCH TEST as $test: $what"; return 1; }
    echo "$number NOT FOUND by $test: $what"
    return 1
  fi
  # Some tests build programs of their own. One that is not built has found nothing.
  if grep -qE 'does not build|^FAILED build ' "$log"; then
    echo "$number DOES NOT BUILD in $test: $what"
    return 1
  fi
  grep -qE 'test result: FAILED|after 60s|has overflowed its stack' "$log" || { echo "$number NO VERDICT of $test: $what"; tail "$log"; return 1; }
  echo "$number found by $test in $((SECONDS - start)) s, built in $built s: $what"
}

# Whether the text of each mistake is still in its file.
check_all() {
  local bad=0 number=0 what file from into where test mistake
  for mistake in "${mistakes[@]}"; do
    number=$((number + 1))
    IFS='~' read -r what file from into where test <<<"$mistake"
    FROM=$from python3 - "$file" <<'PY' || { echo "$number DOES NOT APPLY: $what"; bad=1; }
import os, sys
sys.exit(os.environ["FROM"] not in open(sys.argv[1]).read())
PY
  done
  echo "$number mistakes"
  exit $bad
}

# Runs the tests of these mistakes on the unchanged files, each once. A test that fails there finds nothing.
pass_all() {
  local bad=0 mistake what file from into where test
  local -A done=()
  restore
  for mistake in "$@"; do
    IFS='~' read -r what file from into where test <<<"$mistake"
    [ -z "${done["$where~$test"]:-}" ] || continue
    done["$where~$test"]=1
    # shellcheck disable=SC2086
    (cd "$copy" && CARGO_TARGET_DIR=$target timeout 600 cargo test $where "$test") >"$log" 2>&1 &&
      grep -qE '^running [1-9]' "$log" || { echo "FAILS WITHOUT A MISTAKE: $test"; tail -n 20 "$log"; bad=1; }
  done
  return $bad
}

# Plants those of `mistakes` whose numbers are given, or all. `check` plants none.
plant_all() {
  [ "${1:-}" != check ] || check_all
  local bad=0 number=0 mistake chosen=()
  for mistake in "${mistakes[@]}"; do
    number=$((number + 1))
    [ $# = 0 ] || [[ " $* " == *" $number "* ]] || continue
    chosen+=("$mistake")
  done
  pass_all "${chosen[@]}" || exit 1
  number=0
  for mistake in "${mistakes[@]}"; do
    number=$((number + 1))
    [ $# = 0 ] || [[ " $* " == *" $number "* ]] || continue
    plant "$number" "$mistake" || bad=1
  done
  [ -z "$last" ] || restore
  exit $bad
}
