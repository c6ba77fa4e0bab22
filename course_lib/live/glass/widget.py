"""The glass model as a widget: anywidget brings the page's module and the model's bytes together."""

import anywidget
import traitlets

from course_lib.live.glass import HERE, script
from course_lib.live.page import enlarged

WHERE_THERE_IS_ROOM = f"@media (min-width: 1600px) {{ .glass {{ zoom: {enlarged(100)}%; }} }}"


class GlassModel(anywidget.AnyWidget):
    """The widget that `glass` shows. packed: from `pack`; about: from `about_of`; seen: the text, the open part and the
    view."""

    _esm = script()
    _css = (HERE / "glass.css").read_text(encoding="utf-8") + WHERE_THERE_IS_ROOM
    packed = traitlets.Bytes().tag(sync=True)
    about = traitlets.Dict().tag(sync=True)
    seen = traitlets.Dict().tag(sync=True)
