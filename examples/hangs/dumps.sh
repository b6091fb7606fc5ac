#!/bin/bash
# Names the rank that did not come, from the dumps of all ranks: bash dumps.sh JOBID
srunbook explain "watched-$1.out" "dumps-$1"/*.json
