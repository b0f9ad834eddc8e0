/** Choose between light, dark, and the setting of the system. */

import { MoonIcon, ScreenIcon, SunIcon } from "./icons";
import { Menu } from "./menu";
import type { Theme, ThemeName } from "./theme";

const THEMES: readonly { readonly name: ThemeName; readonly label: string; readonly Icon: typeof SunIcon }[] = [
  { name: "system", label: "As the system", Icon: ScreenIcon },
  { name: "light", label: "Light", Icon: SunIcon },
  { name: "dark", label: "Dark", Icon: MoonIcon },
];

export function ThemeMenu({ theme }: { theme: Theme }) {
  const chosen = THEMES.find(({ name }) => name === theme.name.value) ?? THEMES[0]!;
  return (
    <Menu
      label="Colours"
      entries={THEMES.map(({ name, label }) => ({
        label,
        isChecked: name === chosen.name,
        run: () => theme.choose(name),
      }))}
    >
      <chosen.Icon />
    </Menu>
  );
}
