"""`digideep.testing.toy_sac` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_sac

cpanel = toy_sac.cpanel
gen_params = acting(toy_sac.gen_params)
