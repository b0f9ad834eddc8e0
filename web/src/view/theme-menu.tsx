/** Choose between light, dark, and the setting of the system. */

import { MoonIcon, ScreenIcon, SunIcon } from "./icons";
import { Menu } from "./menu";
import type { Theme, ThemeName } from "./theme";
import { strings } from "../strings";

const THEMES: readonly { readonly name: ThemeName; readonly Icon: typeof SunIcon }[] = [
  { name: "system", Icon: ScreenIcon },
  { name: "light", Icon: SunIcon },
  { name: "dark", Icon: MoonIcon },
];

export function ThemeMenu({ theme }: { theme: Theme }) {
  const chosen = THEMES.find(({ name }) => name === theme.name.value) ?? THEMES[0]!;
  return (
    <Menu
      label={strings.account.theme}
      entries={THEMES.map(({ name }) => ({
        label: strings.account.themes[name],
        isChecked: name === chosen.name,
        run: () => theme.choose(name),
      }))}
    >
      <chosen.Icon />
    </Menu>
  );
}
