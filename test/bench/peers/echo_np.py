"""The trainer of a benchmark: answers each task with the model that it brings. usage: echo_np.py PROFILE.json"""

import logging
import os
import sys

import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

logging.basicConfig(level=logging.ERROR)
flare.init(config_file=sys.argv[1])
while flare.is_running():
    model = flare.receive()
    if model is None:
        break
    flare.send(FLModel(params=model.params, params_type=ParamsType.FULL))
flare.shutdown()
# The process-wide network runtime keeps non-daemon threads; leave without waiting for them.
os._exit(0)
