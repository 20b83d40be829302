"""Taking sequential networks apart and putting their blocks together again (pFedHR, section 3)."""
