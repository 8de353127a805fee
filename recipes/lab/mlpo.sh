#!/usr/bin/env bash
# MLPO on the lab's team, from its members to the tables, on one GPU. Run it from the project's root; a
# run that was cut off goes on where it ended. Logs are in runs/logs.
#     recipes/lab/mlpo.sh
set -euo pipefail
pilotfish=${PILOTFISH:-pilotfish}
mkdir -p runs/logs

# Engines in one process share the GPU's memory, and two processes run side by side.
memory=(--set team.leader.memory=0.06)
for agent in agent-1 agent-2 agent-3; do memory+=(--set "team.$agent.memory=0.04"); done

train() { # NAME RECIPE [SETTINGS…]
    local name=$1 recipe=$2
    shift 2
    $pilotfish train "recipes/lab/$recipe.yaml" --run "runs/lab-$name" "$@" &>>"runs/logs/train-$name"
}

measure() { # NAME [SETTINGS…]
    local name=$1
    shift
    $pilotfish eval "runs/lab-$name" "${memory[@]}" "$@" &>>"runs/logs/eval-$name"
}

for member in leader agent-1 agent-2 agent-3; do
    train "$member" "$member" --set train.micro_batch=128
done

# MLPO and MLPO+ beside zero-shot GRPO, on the same tasks and with as many steps.
train zero-shot-grpo zero-shot-grpo --set team.leader.memory=0.08 &
zero_shot=$!
train mlpo mlpo "${memory[@]}"
wait "$zero_shot"

# What the leader reads of an answer: MLPO's stage alone, from the untrained leader.
ablate() {
    local share alone=(--set stages.sft=null --set stages.shaped=null --set stages.mlpo+=null)
    for share in full reasoning answer; do
        train "share-$share" mlpo "${memory[@]}" "${alone[@]}" --set "topology.options.share=$share"
        measure "share-$share" --set evaluate.alone=false --set "evaluate.against=[]"
    done
}
ablate &
ablations=$!
measure mlpo --set "evaluate.weights={zero-shot: runs/lab-zero-shot-grpo}"
$pilotfish eval recipes/lab/scoreboard.yaml --run runs/lab-scoreboard "${memory[@]}" &>>runs/logs/eval-scoreboard
wait "$ablations"
