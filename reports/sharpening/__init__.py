"""Better, or only sharper: runs beside their base at lower temperatures."""
