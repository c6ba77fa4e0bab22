# No check anywhere, no heading, no import of the course: nothing but answers. They are found by their names.
# expects: efficiency.kv_cache_bytes efficiency.kv_cache
# earns: efficiency.kv_cache_bytes efficiency.kv_cache
# %%
import torch
# %%
efficiency_kv_cache_bytes = 2 * 2 * 32 * 4096 * 4096
# %%
def cached_attention(q_new, k_new, v_new, cache):
    if cache is None:
        k, v = k_new, v_new
    else:
        k, v = torch.cat((cache[0], k_new), 2), torch.cat((cache[1], v_new), 2)
    new, all_of_them = q_new.size(2), k.size(2)
    later = torch.arange(all_of_them) > torch.arange(all_of_them - new, all_of_them)[:, None]
    scores = q_new @ k.transpose(2, 3) * q_new.size(3) ** -0.5
    return scores.masked_fill(later, -1e30).softmax(3) @ v, (k, v)
