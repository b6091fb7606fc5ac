#!/bin/bash
# Saves a job script as an editor on Windows does, and submits it.
printf '#!/bin/bash\r\n#SBATCH --nodes=1\r\nsrun hostname\r\n' > job.sbatch
sbatch job.sbatch
