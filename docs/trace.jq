# Functions for reading a trace with jq:
#
#   zstd -dc run.trace.zst | jq -L docs 'include "trace"; select(.kind == "sample") | queues | ...'

# rows makes an array of objects of an object of columns.
def rows: . as $columns
  | if . == null then [] else
      [range(to_entries[0].value | length) as $i | $columns | map_values(.[$i])]
    end;

# queues yields the queues of a sample, each with the time of the sample.
def queues: .at_ns as $at | .queues | rows[] | {at_ns: $at} + .;

# unpack makes [bucket, count] pairs of a histogram.
def unpack:
  "!#$%&'()*+,-./:;<=>?@[]^_`{|}" as $escapes
  | if . == null then null elif . == "" then [] else
      [scan("~[0-9]+~|[^0-9A-Za-z~]?[0-9A-Za-z]")
        | if startswith("~") then .[1:-1] | tonumber
          else (.[-1:] | explode[0] | if . < 58 then . - 48 elif . < 91 then . - 55 else . - 61 end)
            + (if length == 2 then .[:1] as $e | 62 * (1 + ($escapes | index($e))) else 0 end)
          end]
      | . as $numbers
      | reduce range(1; length) as $i ({n: 0, pairs: []};
          $numbers[$i] as $z
          | .n += (if $z % 2 == 0 then $z / 2 else -($z + 1) / 2 end)
          | .pairs += [[$numbers[0] + $i - 1, .n]])
      | [.pairs[] | select(.[1] != 0)]
    end;
