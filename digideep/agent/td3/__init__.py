"""Twin delayed deep deterministic policy gradient."""
