# Marks of HTML, terminals, spreadsheets, Markdown and templates in names, messages, prints, values and cells.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge attention.memory masks.patterns attention.who_is_it
# touches: text
# %% [markdown]
# <script>alert(1)</script> ![x](http://127.0.0.1:{PORT}/x.png) `rm -rf` ${{ secrets.TOKEN }}
# %%
evil = (
    "=HYPERLINK(\"http://127.0.0.1:{PORT}\")\r\n+1-1@SUM(1)\t|,\"';\n<script>alert(1)</script><img src=x onerror=alert(1)>"
    "\x1b]0;title\x07\x1b[31m\x1b[2K\x00\x08\x7f\u202e\u2066\ufeff\u2028 ]]> --> ${{ 7*7 }} {{7*7}} %s %n `code` ::set-output::"
)
attention_memory = evil
masks_patterns = [evil]
# %%
raise RuntimeError(evil)
# %%
def softmax(x, dim):
    raise ValueError(evil)


def causal_mask(T, S=None):
    print(evil)
    return {evil: evil}


def padding_mask(lengths, S):
    raise type("<b>=Error", (Exception,), {})(evil)


def split_heads(x, n_heads):
    return type("<script>alert(1)</script>\x1b[31m", (), {})()


def merge_heads(x):
    return evil


def most_attended(tokens, embeddings, query_token):
    return [evil, {evil}]


exec(compile("def merge_heads(x): raise KeyError(evil)", "<script>\x1b[31m=1+1</script>", "exec"), globals())
