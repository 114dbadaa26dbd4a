#!/usr/bin/env bash
# run_ranks.sh RANKS PROGRAM [args]: starts the ranks of one machine without a launcher, told of
# their places as torchrun does. Fails when one of them does.
set -u
WORLD_SIZE=$1
shift
HOME=$(mktemp -d)  # where the ranks' common token will be
trap 'rm -rf "$HOME"' EXIT
MASTER_ADDR=127.0.0.1
MASTER_PORT=$((20000 + $$ % 12000))
LOCAL_WORLD_SIZE=$WORLD_SIZE
export HOME WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
ranks=()
for ((rank = 0; rank < WORLD_SIZE; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  ranks+=($!)
done
failed=0
for process in "${ranks[@]}"; do
  wait "$process" || failed=1
done
exit "$failed"
