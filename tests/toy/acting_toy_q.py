"""`digideep.testing.toy_q` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_q

cpanel = toy_q.cpanel
gen_params = acting(toy_q.gen_params)
