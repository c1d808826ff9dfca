import * as Fqcn from "../../identity/Fqcn.ts"

/** The longest prefix of a name, the name itself included, that is connected. */
const longestConnected = (name: string, isConnected: (name: string) => boolean): string | undefined => {
  for (let prefix = name; prefix !== ""; prefix = Fqcn.parent(prefix)) {
    if (isConnected(prefix)) {
      return prefix
    }
  }
  return undefined
}

const connectedParent = (me: string, isConnected: (name: string) => boolean): string | undefined => {
  const parent = Fqcn.parent(me)
  return parent !== "" && isConnected(parent) ? parent : undefined
}

/**
 * The cell to hand a message for `target` to, `undefined` where there is none; `target` itself when it is `me`.
 * Source: docs/wire/cellnet.md, section 6.1.
 */
export const nextHop = (me: string, target: string, isConnected: (name: string) => boolean): string | undefined => {
  if (target === me || isConnected(target)) {
    return target
  }
  if (Fqcn.sameFamily(me, target)) {
    if (Fqcn.isParent(me, target)) {
      return undefined
    }
    return Fqcn.isAncestor(me, target) ? longestConnected(target, isConnected) : connectedParent(me, isConnected)
  }
  const prefix = longestConnected(target, isConnected)
  if (prefix !== undefined) {
    return prefix
  }
  return me !== "server" && isConnected("server") ? "server" : connectedParent(me, isConnected)
}

/**
 * The next hop of a message under way, which must not go where it has been; only its end may have been on the way.
 * Source: docs/wire/cellnet.md, section 6.2.
 */
export const forwardHop = (
  me: string,
  target: string,
  passed: ReadonlyArray<string>,
  isConnected: (name: string) => boolean
): string | undefined => {
  const hop = nextHop(me, target, isConnected)
  return hop !== undefined && hop !== target && passed.includes(hop) ? undefined : hop
}
