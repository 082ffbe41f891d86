#!/usr/bin/env bash
# Holds a chat of three turns against aimock, then replays it, and asserts through aimock's own request
# journal that the turns asked the model three times, with the whole conversation and as streams, and
# that the replay did not ask it at all.
#
#   check.sh BINARY
set -euo pipefail

if [[ $# -ne 1 || ! -x $1 ]]; then
  echo "usage: check.sh BINARY" >&2
  exit 2
fi
binary=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
aimock=

finish() {
  local status=$?
  trap - EXIT
  exec 3>&- # aimock ends with its standard input
  if [[ -n $aimock ]]; then
    for _ in {1..50}; do kill -0 "$aimock" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$aimock" 2>/dev/null || true
    wait "$aimock" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT

fail() {
  echo "check.sh: $1" >&2
  for file in "$work"/*.out "$work"/*.err; do
    [[ -s $file ]] && { echo "--- ${file##*/}"; cat "$file"; } >&2
  done
  exit 1
}

# says FILE TEXT: the file holds the text.
says() { grep -qF -- "$2" "$1" || fail "${1##*/} does not say: $2"; }

requests() { node "$here/requests.mjs" "$url" || fail "aimock does not tell its requests"; }

if [[ ! -d $here/node_modules/@copilotkit/aimock ]]; then
  npm install --prefix "$here" --no-package-lock --no-audit --no-fund --silent
fi
mkfifo "$work/stdin"
node "$here/start.mjs" <"$work/stdin" >"$work/aimock.out" 2>"$work/aimock.err" 3>&- &
aimock=$!
exec 3>"$work/stdin"
url=
for _ in {1..100}; do
  url=$(sed -n 's/^aimock at //p' "$work/aimock.out")
  [[ -n $url ]] && break
  kill -0 "$aimock" 2>/dev/null || fail "aimock ended"
  sleep 0.1
done
[[ -n $url ]] || fail "aimock is not ready after 10 s"

journal=(--journal "$work/journal.redb")
model=(--harness chat --model gpt-test --model-base-url "$url/v1")
session=()
turn=0
for question in "What is a mainspring?" "Who winds it?" "And if nobody does?"; do
  turn=$((turn + 1))
  out=$work/turn-$turn.out
  timeout 60 "$binary" exec "${journal[@]}" "${model[@]}" "${session[@]}" --input "$question" \
    >"$out" 2>"$work/turn-$turn.err" || fail "turn $turn exited with $?"
  says "$out" "user: $question"
  if [[ $turn -eq 1 ]]; then
    uid=$(sed -n 's/^session \(sess-[0-9a-f]*\).*/\1/p' "$out" | head -n 1)
    [[ -n $uid ]] || fail "turn 1 names no session"
    session=(--session "$uid")
  fi
done
says "$work/turn-1.out" "assistant: The spring that drives a mechanical watch"
says "$work/turn-2.out" "assistant: Whoever wears the watch"
says "$work/turn-3.out" "assistant: It stops, and it goes on from the same position"

asked=$(requests)
expected="1 model=gpt-test messages=1 streamed
2 model=gpt-test messages=3 streamed
3 model=gpt-test messages=5 streamed"
[[ $asked == "$expected" ]] || fail "aimock was asked otherwise: $asked"

timeout 60 "$binary" replay "${journal[@]}" --re-execute --session "$uid" \
  >"$work/replay.out" 2>"$work/replay.err" || fail "replay exited with $?"
says "$work/replay.out" "It stops, and it goes on from the same position"
says "$work/replay.out" "model_calls=0"
[[ $(requests) == "$expected" ]] || fail "the replay asked the model"

echo "ok: three turns asked the model three times, the replay never"
