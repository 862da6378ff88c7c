"""Tests of what the other tests stand on: they hold where a broken stand-in would let all pass."""
