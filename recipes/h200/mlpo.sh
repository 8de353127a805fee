#!/usr/bin/env bash
# The claims of MLPO: members, trainings, tables. Run it from the project's root.
#     recipes/h200/mlpo.sh                     # the blocks `table` and `share`
#     recipes/h200/mlpo.sh votes rounds        # others; docs/claims.md says what each shows and how long it takes
#     GPUS="0 1" recipes/h200/mlpo.sh          # on two GPUs
# common.bash says how they are run and what is kept of them.
set -uo pipefail
. "$(dirname "$0")/common.bash"
seeds=(${SEEDS:-1 2}) # of the block `seeds`, beside 0
last=${seeds[-1]}
order=(table share)
declare -A tables=([table]="mlpo" [seeds]="${seeds[*]/#/mlpo@} + mlpo@$last") # the second one of the last seed is over all seeds
for block in share votes rounds decimals scoreboard agents sets order filter leaders; do tables[$block]=mlpo-$block; done
declare -A needs=(
    [mlpo]="mlpo mlpo-longer mlpo-no-sft mlpo-zero-shot"
    [mlpo-share]="mlpo-no-sft mlpo-share-reasoning mlpo-share-answer"
    [mlpo-votes]="mlpo mlpo-zero-shot"
    [mlpo-rounds]="mlpo"
    [mlpo-decimals]="mlpo mlpo-zero-shot"
    [mlpo-scoreboard]="mlpo"
    [mlpo-agents]="mlpo-no-sft mlpo-agents-1 mlpo-agents-2 mlpo-agents-3"
    [mlpo-sets]="mlpo-sets-1 mlpo-sets-2 mlpo-sets-4 mlpo-sets-8"
    [mlpo-order]="mlpo-sets-4 mlpo-order-by-set mlpo-order-by-task mlpo-order-easy-first mlpo-order-hard-first"
    [mlpo-filter]="mlpo-no-sft mlpo-filter-off mlpo-filter-half"
    [mlpo-leaders]="mlpo-no-sft mlpo-leader-weak mlpo-leader-untaught"
)
members=(lab/leader lab/agent-1 lab/agent-2 lab/agent-3)
declare -A of=([leaders]="h200/mlpo-leader-100")

options() { # TABLE [SEED]
    [[ ${2-} ]] || return
    printf '%s\n' --set "seed=$2" --set "evaluate.weights={zero-shot: runs/h200-mlpo-zero-shot-$2, \
no-sft: runs/h200-mlpo-no-sft-$2, longer: runs/h200-mlpo-longer-$2}"
    [[ $2 == "$last" && -e runs/h200-mlpo-$last/measured ]] || return
    local others
    others=$(other_seeds)
    [[ $others ]] && printf '%s\n' --set "evaluate.seeds=[$others]"
}

other_seeds() { # of mlpo.yaml, those runs that are measured, here or where runs/tables comes from, but the last one
    local run kept found=
    for kept in runs/tables/h200-mlpo runs/tables/h200-mlpo-[0-9]*; do
        run=runs/${kept##*/}
        [[ -e $kept/scores.jsonl.gz && $run != "runs/h200-mlpo-$last" ]] || continue
        [[ $run == runs/h200-mlpo && " ${seeds[*]} " == *" 0 "* ]] && continue # seed 0 as well
        if [[ ! -e $run ]]; then
            mkdir "$run"
            cp "$kept/recipe.yaml" "$run"
            gunzip -c "$kept/scores.jsonl.gz" >"$run/scores.jsonl"
        fi
        found+="$run, "
    done
    echo "${found%, }"
}

main "$@"
exit
