"""What a kernel runs before any cell if `python -m course_lib start` opened JupyterLab. It leaves no names behind."""

try:
    from course_lib.live.beginning import begin
except ImportError:  # a kernel of another environment, without the course
    pass
else:
    begin()
    del begin
