#!/usr/bin/env bash
# Runs the installed chunkrecall command to each of its exit codes and prints "CODE what happened".
# Needs only chunkrecall on the PATH; works in a folder of its own.
set -uo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99

cat > labels.jsonl <<'ROWS'
{"query_id": "refund", "text": "How long does a refund take?", "relevant": ["Refunds take 14 days."]}
{"query_id": "fees", "text": "What does delivery cost?", "relevant": ["Express costs 9 euros."]}
ROWS
cat > search.py <<'CODE'
def shelf(text):
    return ["Refunds take 14 days."]

def half(text):
    if text.startswith("What"):
        raise ValueError("no index of fees")
    return ["Refunds take 14 days."]

def down(text):
    raise PermissionError("no key")
CODE
echo 'raise RuntimeError("no index here")' > broken.py
echo '{"query_id": "refund", "text": 7}' > bad.jsonl

# try WHAT ARGUMENTS…: what the command prints is kept for the case that a code is wrong.
try() {
    local what=$1
    shift
    chunkrecall "$@" > out.txt 2> err.txt < /dev/null
    echo "$? $what"
    sed 's/^/    /' err.txt >&2
}
run() {
    local what=$1 retriever=$2
    shift 2
    try "$what" run "$retriever" --dataset labels.jsonl --k 1,5 "$@"
}

run "no gate asked for" search.py:shelf --save-run run.jsonl --report report.json
run "the gate is met" search.py:shelf --min-recall 0.5@5
run "half of the queries suffice" search.py:half --min-recall 1@5 --min-coverage 0.5
try "a run file meets the gate" score run.jsonl labels.jsonl --k 5 --min-recall 0.5@5
run "as good as the baseline" search.py:shelf --baseline report.json

run "the gate is missed" search.py:shelf --min-recall 0.8@5
try "a run file misses the gate" score run.jsonl labels.jsonl --k 5 --min-hits 0.8@5
run "the gate is missed, with a code of one's own" search.py:shelf --min-recall 0.8@5 --gate-exit-code 17

try "no arguments" run
run "a threshold that is none" search.py:shelf --min-recall good
run "a share above 1" search.py:shelf --min-coverage 80
try "a bad file" run search.py:shelf --dataset bad.jsonl
try "no file" score nowhere.jsonl labels.jsonl

run "no such module" nowhere:shelf
run "a module that fails" broken.py:shelf
run "no such name" search.py:nothing

run "nothing was measured" search.py:down
run "nothing was measured for the gate" search.py:down --min-recall 0@5 --gate-exit-code 0
run "too little was measured for the gate" search.py:half --min-recall 0.5@5
run "less than the coverage asked for" search.py:half --min-coverage 0.9
