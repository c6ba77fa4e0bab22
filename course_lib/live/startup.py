"""What a kernel runs before any cell where `python -m course_lib start` opened JupyterLab. It leaves no name behind."""

try:
    from course_lib.live.beginning import begin
except ImportError:  # a kernel of another environment, without the course
    pass
else:
    begin()
    del begin
