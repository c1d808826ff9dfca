"""An ordinary NVFlare PyTorch trainer over the public Client API (nvflare.client).

usage: trainer_pt.py PROFILE.json [--add N] [--diff]

It keeps its model as a state dict, loads what each task brings into it, adds N to each tensor but bools, and answers with
the state dict as it is. Prints JSON lines; exit code 0 only when the job ended in order.
"""

import argparse
import json
import os
import sys
import time

import torch


class Model(torch.nn.Module):
    """Whatever tensors a task brings, as buffers and parameters; dots in names make modules."""

    def __init__(self, tensors):
        super().__init__()
        for name, value in tensors.items():
            *path, leaf = name.split(".")
            module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            if value.is_floating_point():
                module.register_parameter(leaf, torch.nn.Parameter(torch.zeros_like(value)))
            else:
                module.register_buffer(leaf, torch.zeros_like(value))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("profile")
    p.add_argument("--add", type=float, default=1.0)
    p.add_argument("--diff", action="store_true", help="the job's transfer type is DIFF: nvflare subtracts; no bools then")
    a = p.parse_args()

    import nvflare.client as flare
    from nvflare.app_common.abstract.fl_model import FLModel

    def note(**rec):
        print(json.dumps(rec, default=str), flush=True)

    rc = 0
    model = None
    try:
        flare.init(config_file=a.profile)
        note(event="attached", torch=torch.__version__, config=flare.get_config().get("task_exchange"))
        while flare.is_running():
            m = flare.receive()
            if m is None:
                break
            for name, value in m.params.items():
                if not isinstance(value, torch.Tensor):
                    raise TypeError(f"{name} came as {type(value)}")
            model = model or Model(m.params)
            model.load_state_dict(m.params)
            note(event="received", round=m.current_round,
                 params={k: [str(v.dtype), list(v.shape)] for k, v in m.params.items()})
            with torch.no_grad():
                for value in model.state_dict().values():
                    if value.dtype != torch.bool:
                        value.add_(int(a.add) if a.add.is_integer() else a.add)
            s = time.monotonic()
            # A state dict is an OrderedDict of views of the live parameters.
            flare.send(FLModel(params=model.state_dict(), metrics={"accuracy": 0.5}, meta={"NUM_STEPS_CURRENT_ROUND": 10}))
            note(event="sent", secs=round(time.monotonic() - s, 4))
    except BaseException as e:
        note(event="error", type=type(e).__name__, msg=str(e))
        rc = 3
    finally:
        try:
            flare.shutdown()
        except RuntimeError:
            pass  # init never succeeded: there is no context to shut down
    note(event="exit", rc=rc)
    # The process-wide network runtime keeps non-daemon threads; leave without waiting for them.
    sys.stdout.flush()
    os._exit(rc)


if __name__ == "__main__":
    main()
