import { render } from "preact";
import "./style/tokens.css";
import "./style/layout.css";
import "./style/controls.css";
import { registerOfflinePage } from "./offline/registration";
import { SignIn } from "./session/sign-in";
import { Language } from "./strings/language";
import { PageView } from "./view/page";
import { stayAboveKeyboard } from "./browser/viewport";

const signIn = new SignIn();
const language = new Language(signIn.storage);
// Nothing is shown in another language first.
void language.shown.then(() => {
  language.close();
  void signIn.start();
  stayAboveKeyboard();
  render(<PageView signIn={signIn} />, document.getElementById("page") as HTMLElement);
  registerOfflinePage();
});
