"""Copy the runs of a sweep, each from its own database, into mlflow.db, to compare them in one place.

python merge_mlflow.py
mlflow server --backend-store-uri sqlite:///mlflow.db
"""

from pathlib import Path

from mlflow import MlflowClient

Path("mlflow.db").unlink(missing_ok=True)
merged = MlflowClient("sqlite:///mlflow.db")
experiment = merged.create_experiment("my-sweep")
for database in sorted(Path("runs").glob("*/mlflow.db"), key=lambda path: int(path.parent.name)):
    single = MlflowClient(f"sqlite:///{database}")
    (run,) = single.search_runs([each.experiment_id for each in single.search_experiments()]) or [None]
    if run is None:  # its job has only just started
        continue
    copy = merged.create_run(experiment, run.info.start_time, run.data.tags, run.info.run_name).info.run_id
    for name, value in run.data.params.items():
        merged.log_param(copy, name, value)
    for name in run.data.metrics:
        history = single.get_metric_history(run.info.run_id, name)
        for metric in history:
            merged.log_metric(copy, name, metric.value, metric.timestamp, metric.step)
        print(f"{run.info.run_name}: {name} of {len(history)} epochs, the last {history[-1].value:.6f}")
    merged.set_terminated(copy, run.info.status, run.info.end_time)
