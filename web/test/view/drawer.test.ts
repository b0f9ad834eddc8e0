import { describe, expect, it } from "vitest";
import { MemoryStorage } from "../../src/browser/storage";
import { StorageScope } from "../../src/session/storage-scope";
import { Drawer } from "../../src/view/drawer";

const storage = (): StorageScope => new StorageScope("own", new MemoryStorage());

describe("the list beside the chat", () => {
  it("stays hidden until it is shown again, also after a reload", () => {
    const here = storage();
    const drawer = new Drawer(here, false);
    expect([drawer.isShown.value, drawer.isOver.value]).toEqual([true, false]);
    drawer.close();
    expect(drawer.isShown.value).toBe(false);
    expect(new Drawer(here, false).isShown.value).toBe(false);
    drawer.open();
    expect(new Drawer(here, false).isShown.value).toBe(true);
  });

  it("covers the chat on narrow screens until the user moves on", () => {
    const here = storage();
    const drawer = new Drawer(here, true);
    expect([drawer.isShown.value, drawer.isOver.value]).toEqual([false, false]);
    drawer.open();
    expect([drawer.isShown.value, drawer.isOver.value]).toEqual([true, true]);
    drawer.leave();
    expect(drawer.isOver.value).toBe(false);
    expect(here.names()).toEqual([]);
  });

  it("takes the focus once", () => {
    const drawer = new Drawer(storage(), true);
    drawer.open("search");
    expect(drawer.takesFocus("chats")).toBe(false);
    expect([drawer.takesFocus("search"), drawer.takesFocus("search")]).toEqual([true, false]);
    drawer.close();
    expect([drawer.takesFocus("search"), drawer.takesFocus("button")]).toEqual([false, true]);
  });
});
