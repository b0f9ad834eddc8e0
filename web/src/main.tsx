import { render } from "preact";
import "./style/tokens.css";
import "./style/layout.css";
import "./style/controls.css";
import { Arriving } from "./session/sign-in";
import { PageView } from "./view/page";
import { stayAboveKeyboard } from "./view/viewport";

const arriving = new Arriving();
void arriving.arrive();
stayAboveKeyboard();
render(<PageView arriving={arriving} />, document.getElementById("page") as HTMLElement);
