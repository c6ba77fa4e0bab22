# A figure that is to be measured with a pretended clock stands in the object that pretends: it is read there.
# expects: efficiency.quadratic
# %%
def time_exponent(attention, lengths, rounds, clock):
    for T in lengths:
        attention.calls[T] += rounds
    clock.readings += 100
    return attention.power
