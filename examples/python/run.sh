#!/usr/bin/env bash
# Runs client.py against `mainspring serve`, with echo_harness.py as its remote harness, checks what the
# client printed, and stops everything.
#
#   run.sh BINARY
#
# PYTHON is the interpreter that has requirements.txt installed (default python3).
set -euo pipefail

if [[ $# -ne 1 || ! -x $1 ]]; then
  echo "usage: run.sh BINARY" >&2
  exit 2
fi
binary=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
started=()

finish() {
  local status=$? pid
  trap - EXIT
  exec 3>&- # the harness ends with its standard input
  for pid in "${started[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do
    for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT

fail() {
  echo "run.sh: $1" >&2
  for file in "$work"/*.out "$work"/*.err; do
    [[ -s $file ]] && { echo "--- ${file##*/}"; cat "$file"; } >&2
  done
  exit 1
}

# served NAME PID: sets `address` to where it serves, once it says so.
served() {
  for _ in {1..300}; do
    address=$(sed -n 's/^serving on \([^ ]*\).*/\1/p' "$work/$1.out" | head -n 1)
    [[ -n $address ]] && return
    kill -0 "$2" 2>/dev/null || fail "$1 ended before it served"
    sleep 0.1
  done
  fail "$1 does not serve after 30 s"
}

"$python" -c 'import grpc_tools' 2>/dev/null || fail "$python lacks grpcio-tools: pip install -r $here/requirements.txt"
"$python" "$here/generate.py" "$work/stubs"
export PYTHONPATH=$work/stubs

mkfifo "$work/stdin"
"$python" "$here/echo_harness.py" 127.0.0.1:0 <"$work/stdin" >"$work/harness.out" 2>"$work/harness.err" 3>&- &
started+=($!)
exec 3>"$work/stdin"
served harness "${started[0]}"

"$binary" serve --addr 127.0.0.1:0 --journal "$work/journal.redb" --harness "python-echo=$address" \
  </dev/null >"$work/serve.out" 2>"$work/serve.err" 3>&- &
started+=($!)
served serve "${started[1]}"

timeout 120 "$python" "$here/client.py" "$address" python-echo >"$work/client.out" 2>"$work/client.err" ||
  fail "client exited with $?"

cat >"$work/turns" <<'END'
seq=1   EVENT_EXECUTION_START
seq=2   EVENT_INPUT  user: hello
seq=3   EVENT_OUTPUT  assistant: echo:hello
seq=4   EVENT_END
seq=5   EVENT_EXECUTION_START
seq=6   EVENT_INPUT  user: again
seq=7   EVENT_OUTPUT  assistant: echo:again
seq=8   EVENT_END
END
uid=$(sed -n 's/^session \(sess-[0-9a-f]*\)$/\1/p' "$work/client.out")
{
  echo "session $uid"
  cat "$work/turns"
  echo replay
  cat "$work/turns"
  echo list
  echo "$uid last_seq=8 name=from python"
  echo "unknown session: NOT_FOUND"
} >"$work/expected"
diff -u "$work/expected" "$work/client.out" >"$work/diff.err" || fail "the client printed something else"

echo "ok: a Python client ran a session with a Python harness"
