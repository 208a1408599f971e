# A class whose calls are its objects' steps.

cdef extern from * nogil:
    """
    #include <structmember.h>

    // Where the objects of the class keep their step, and what their calls were before.
    static PyTypeObject* step_type = nullptr;
    static Py_ssize_t step_offset = 0;
    static ternaryfunc general_call = nullptr;

    // A call of an object: that of its step, or where there is none or it returns None, that of the class.
    static PyObject* call_step(PyObject* object, PyObject* args, PyObject* keywords) {
      PyObject* const step = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + step_offset);
      if (step != nullptr && Py_TYPE(step) == step_type) {
        Py_INCREF(step);
        PyObject* const result = step_type->tp_call(step, args, keywords);
        Py_DECREF(step);
        if (result != Py_None) return result;
        Py_DECREF(result);
      }
      return general_call(object, args, keywords);
    }

    // The class keeps its `__call__`, which help() shows, subclasses inherit and the general call runs. Python
    // gives the slot back to it if another is assigned.
    static void call_steps(PyObject* owner, PyObject* steps, PyObject* slot) {
      PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(owner);
      if (step_type != nullptr) return;
      step_type = reinterpret_cast<PyTypeObject*>(steps);
      step_offset = reinterpret_cast<PyMemberDescrObject*>(slot)->d_member->offset;
      general_call = type->tp_call;
      type->tp_call = call_step;
    }
    """
    void call_steps(object owner, object steps, object slot)


cdef int _call_steps(type owner, type steps) except -1:
    """Make a call of an object of a class one of its step, without a call of Python code."""
    slot = owner._step
    if type(slot).__name__ != "member_descriptor":
        raise TypeError(f"{owner.__name__} must have a slot `_step`")
    call_steps(owner, steps, slot)
    return 0
