#!/usr/bin/env bash
# The claims of MLPO: members, trainings, tables. Run it from the project's root.
#     recipes/h200/mlpo.sh                     # the blocks `table` and `share`
#     recipes/h200/mlpo.sh votes rounds        # others; docs/claims.md says what each shows and how long it takes
#     SEEDS="1 2" recipes/h200/mlpo.sh seeds filter-seeds   # with other training seeds, the last table over all of them
#     GPUS="0 1" recipes/h200/mlpo.sh          # on two GPUs
# common.bash says how they are run and what is kept of them.
set -uo pipefail
. "$(dirname "$0")/common.bash"
seeds=(${SEEDS:-1 2}) # of `seeds` and the blocks that end so, beside 0
last=${seeds[-1]}
order=(table share)
declare -A tables=([table]="mlpo" [seeds]="${seeds[*]/#/mlpo@} + mlpo@$last") # the second one of the last seed is over all seeds
for block in share votes rounds decimals scoreboard agents sets order filter leaders; do tables[$block]=mlpo-$block; done
for block in share votes rounds decimals order filter leaders; do # not those that have trainings named after a number
    tables[$block-seeds]="${seeds[*]/#/mlpo-$block@} + mlpo-$block@$last"
done
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
declare -A of=([leaders]="h200/mlpo-leader-100" [leaders-seeds]="h200/mlpo-leader-100")

options() { # TABLE [SEED]
    [[ ${2-} ]] || return
    local trained=(${needs[$1]}) weights others
    weights=$(sed -nE 's/^  weights: //p' "recipes/h200/$1.yaml" |
        sed -E "s#(runs/h200-($(IFS='|' && echo "${trained[*]}")))([/,}])#\\1-$2\\3#g")
    printf '%s\n' --set "seed=$2" --set "evaluate.weights=$weights"
    [[ $2 == "$last" && -e runs/h200-$1-$last/measured ]] || return
    others=$(other_seeds "$1")
    [[ $others ]] && printf '%s\n' --set "evaluate.seeds=[$others]"
}

other_seeds() { # TABLE: its runs that are measured, here or where runs/tables comes from, but the last one
    local run kept found=
    for kept in "runs/tables/h200-$1" "runs/tables/h200-$1"-[0-9]*; do
        run=runs/${kept##*/}
        [[ -e $kept/scores.jsonl.gz && $run != "runs/h200-$1-$last" ]] || continue
        [[ $run == "runs/h200-$1" && " ${seeds[*]} " == *" 0 "* ]] && continue # seed 0 as well
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
