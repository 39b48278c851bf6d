"""Training a head or a detector on pictures of one's own, and on the published research files.

`sources` finds pictures and labels, `features` extracts and keeps their descriptors, `triplets` draws what to learn
from, `loop` trains, `validation` says what it brought.
"""
