# Dictionaries with keys that equal every key, keys that cannot be hashed twice, and answers that contain themselves.
# expects: feed_forward.parameters normalization.worked_example heads.shape_trace gpt.shape_trace sampling.nucleus_size counting.bert_layer attention.who_is_it
# %%
class Key(str):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("ffn")


class Moody:
    count = 0

    def __hash__(self):
        Moody.count += 1
        return Moody.count

    def __eq__(self, other):
        raise KeyboardInterrupt


feed_forward_parameters = {Key("ffn"): 2099712, Key("x"): 1.0}
normalization_worked_example = {Moody(): 1, (): 2, frozenset(): 3, (1, (2, (3,))): 4}
heads_shape_trace = []
heads_shape_trace.append(heads_shape_trace)
gpt_shape_trace = {}
gpt_shape_trace["token_vectors"] = gpt_shape_trace
sampling_nucleus_size = {"confident": float("nan"), "uncertain": {"uncertain": 7}}
counting_bert_layer = dict.fromkeys(range(100_000), 1)


def most_attended(tokens, embeddings, query_token):
    answer = [query_token, embeddings]
    answer[1] = answer
    return answer
