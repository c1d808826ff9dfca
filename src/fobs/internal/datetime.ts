/** The ISO form of datetimes on the wire (docs/wire/fobs.md, section 3.3). */

const form = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{6})?(?:Z|[+-](\d\d):(\d\d)(?::(\d\d)(?:\.\d{6})?)?)?$/

const monthDays = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

const daysOf = (year: number, month: number): number =>
  month === 2 && year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : (monthDays[month - 1] ?? 0)

const below = (text: string | undefined, limit: number): boolean => Number(text ?? 0) < limit

/**
 * The text in the form that a sender writes: as it is, but `Z` becomes `+00:00`. `undefined` for what is no such date
 * and time.
 */
export const parseDateTime = (text: string): string | undefined => {
  const parts = form.exec(text)
  if (parts === null) return undefined
  const [, year, month, day, hour, minute, second, offsetHour, offsetMinute, offsetSecond] = parts
  const days = daysOf(Number(year), Number(month))
  const valid =
    Number(year) >= 1 &&
    Number(day) >= 1 &&
    Number(day) <= days &&
    below(hour, 24) &&
    below(minute, 60) &&
    below(second, 60) &&
    below(offsetHour, 24) &&
    below(offsetMinute, 60) &&
    below(offsetSecond, 60)
  if (!valid) return undefined
  return text.endsWith("Z") ? `${text.slice(0, -1)}+00:00` : text
}
