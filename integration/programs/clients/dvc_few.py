"""dvc_ with one of its cases, hard links and all inside, for the mounts where the others say nothing new."""
import dvc_
from dvc_ import *  # noqa: F401,F403

dvc_.FEW = True
