"""Files that the published research code writes and reads, as far as they are of use here."""
