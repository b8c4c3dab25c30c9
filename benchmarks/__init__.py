"""The comparison with other systems, as ratios measured in one run."""
