"""`digideep.testing.toy_td3` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_td3

cpanel = toy_td3.cpanel
gen_params = acting(toy_td3.gen_params)
