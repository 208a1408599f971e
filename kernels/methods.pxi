# Methods of a sampler that its step does first. Calls have a shorter way: see call.pxi.
#
# Each takes the arguments of the method that it stands for, which runs where there is no step, or it declines.


def prepared(method):
    """Return a method that does the same, in compiled code where the sampler has a step."""
    return _update_wrapper(_PREPARED[method.__name__](method), method)


def _prepared_sample(method):
    def sample(self, logits, *, at=None, sequences=None, mask=None, bias=None, logprobs=None, logprobs_mode="raw",
               logprob_tokens=None, kept_count=False, margin=False, on_invalid="raise"):
        step = self._step
        if type(step) is Step and margin is False:
            result = (<Step>step).sample(logits, at, sequences, mask, bias, logprobs, logprobs_mode, logprob_tokens,
                                         kept_count, on_invalid)
            if result is not None:
                return result
        return method(self, logits, at=at, sequences=sequences, mask=mask, bias=bias, logprobs=logprobs,
                      logprobs_mode=logprobs_mode, logprob_tokens=logprob_tokens, kept_count=kept_count,
                      margin=margin, on_invalid=on_invalid)
    return sample


def _prepared_add(method):
    def add(self, params=None, *, prompt=(), stream=0, **keywords):
        step = self._step
        if type(step) is Step and not keywords:
            number = (<Step>step)._add(params, prompt, stream)
            if number is not None:
                return number
        return method(self, params, prompt=prompt, stream=stream, **keywords)
    return add


def _prepared_remove(method):
    def remove(self, number):
        step = self._step
        if type(step) is Step:
            sequence = (<Step>step)._remove(number)
            if sequence is not None:
                return sequence
        return method(self, number)
    return remove


cdef dict _PREPARED = {"sample": _prepared_sample, "add": _prepared_add, "remove": _prepared_remove}
