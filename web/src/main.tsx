import { render } from "preact";
import "./style/tokens.css";
import "./style/layout.css";
import "./style/controls.css";
import { Arriving } from "./session/arriving";
import { Realm } from "./session/realm";
import { asked } from "./view/asked";
import { PageView } from "./view/page";
import { Theme } from "./view/theme";
import { stayAboveKeyboard } from "./view/window";

const arriving = new Arriving();
void arriving.arrive();
// Whoever likes it dark is not blinded until the server has said who he is.
new Theme(new Realm("own"), asked().theme);
stayAboveKeyboard();
render(<PageView arriving={arriving} />, document.getElementById("page") as HTMLElement);
