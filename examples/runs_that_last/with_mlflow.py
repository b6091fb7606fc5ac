"""Show each training as one run in MLflow, in a database of its own unless there is a server.

pip install mlflow
export MLFLOW_TRACKING_URI=http://login1:5000  # in the job script, if you have a server
"""

import os

import mlflow


def open_run(folder, settings, history):
    """Log the epochs of the checkpoint that the run lacks; return the function that logs another one."""
    if "MLFLOW_TRACKING_URI" not in os.environ:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")  # only this job writes to it
    mlflow.set_experiment("my-sweep")
    kept = folder / "tracker-id"
    run = mlflow.start_run(run_id=kept.read_text() if kept.exists() else None, run_name=f"row {folder.name}")
    kept.write_text(run.info.run_id)
    mlflow.log_params(settings)

    def log(epoch, metrics):
        mlflow.log_metrics(metrics, step=epoch)

    logged = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")  # EDIT: a metric of every epoch
    for epoch, metrics in list(enumerate(history))[len(logged) :]:
        log(epoch, metrics)
    return log
