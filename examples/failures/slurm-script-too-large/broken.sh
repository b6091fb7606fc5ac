#!/bin/bash
# Submits a script that carries 5 MB of data.
{ echo "#!/bin/bash"; head -c 5000000 /dev/zero | tr "\\0" "#"; } >large.sbatch
sbatch large.sbatch
