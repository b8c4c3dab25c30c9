"""`digideep.testing.toy_a2c` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_a2c

cpanel = toy_a2c.cpanel
gen_params = acting(toy_a2c.gen_params)
