/** Which of some views of memory share no byte with another of them. A view that is there twice shares all of its own. */
export const unshared = (views: Iterable<Uint8Array>): ReadonlySet<Uint8Array> => {
  const alone = new Set<Uint8Array>()
  for (const group of Map.groupBy(views, ({ buffer }) => buffer).values()) {
    let furthest: Uint8Array | undefined
    let end = 0
    for (const view of group.toSorted((a, b) => a.byteOffset - b.byteOffset)) {
      if (furthest !== undefined && view.byteOffset < end) alone.delete(furthest)
      else alone.add(view)
      if (view.byteOffset + view.byteLength >= end) {
        furthest = view
        end = view.byteOffset + view.byteLength
      }
    }
  }
  return alone
}
