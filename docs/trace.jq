# Functions for reading a trace with jq:
#
#   zstd -dc run.trace.zst | jq -L docs 'include "trace"; select(.kind == "sample") | queues | ...'

# rows makes an array of objects of an object of columns. A rounded histogram, of a
# column whose name ends in _levels or _pairs, becomes an object of its form, which
# unpack takes, below the name without that ending.
def rows:
  if . == null then [] else
    with_entries(if .value | type == "string" then
        (.key | capture("^(?<name>.*)_(?<form>levels|pairs)$")) as $rounded
        | {key: $rounded.name, value: [.value | split(" ")[] | {($rounded.form): .}]}
      else . end)
    | . as $columns
    | [range(to_entries[0].value | length) as $i | $columns | map_values(.[$i])]
  end;

# queues yields the queues of a sample, each with the time of the sample.
def queues: .at_ns as $at | .queues | rows[] | {at_ns: $at} + .;

# numbers of a packed text.
def numbers:
  "!#$%&'()*+,-./:;<=>?@[]^_`{|}" as $escapes
  | [scan("~[0-9]+~|[^0-9A-Za-z~]?[0-9A-Za-z]")
      | if startswith("~") then .[1:-1] | tonumber
        else (.[-1:] | explode[0] | if . < 58 then . - 48 elif . < 91 then . - 55 else . - 61 end)
          + (if length == 2 then .[:1] as $e | 62 * (1 + ($escapes | index($e))) else 0 end)
        end];

def signed: if . % 2 == 0 then . / 2 else -(. + 1) / 2 end;

# Counts have three significant bits: their levels are 0 to 7, and four within each
# power of two above.
def count_of_level: if . < 8 then . else (. - 8) as $l | (4 + $l % 4) * pow(2; 1 + ($l / 4 | floor)) end;
def level_of_count: if . < 8 then . else (log2 | floor) as $l | 4 * ($l - 1) + (. / pow(2; $l - 2) | floor) % 4 end;

# unpack makes [bucket, count] pairs of a histogram.
def unpack:
  if . == null then null elif . == "" then []
  elif type == "string" then
    numbers as $numbers
    | reduce range(1; $numbers | length) as $i ({n: 0, pairs: []};
        .n += ($numbers[$i] | signed) | .pairs += [[$numbers[0] + $i - 1, .n]])
    | [.pairs[] | select(.[1] != 0)]
  else
    has("pairs") as $halves
    | (.levels // .pairs | numbers) as $numbers
    | if $numbers == [] then [] else
        reduce range(2; $numbers | length) as $i
          ({level: ($numbers[1] | level_of_count), pairs: [[$numbers[0], $numbers[1]]]};
            .level += ($numbers[$i] | signed) | .pairs += [[$numbers[0] + $i - 1, (.level | count_of_level)]])
        | [.pairs[]
            | if $halves then [2 * .[0], .[1] - (.[1] / 2 | floor)], [2 * .[0] + 1, (.[1] / 2 | floor)] else . end
            | select(.[1] != 0)]
      end
  end;
