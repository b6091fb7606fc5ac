# Makes a new folder, unpacks what comes in, and prints the name: that of the argument, or one with a number.
name=$1 number=1
until mkdir -- "$name" 2>/dev/null; do
    [ -e "$name" ] || [ -L "$name" ] || exec mkdir -- "$name" # the name is free, so let it say what is wrong
    number=$((number + 1))
    name=$1-$number
done
tar --extract --directory="./$name" && printf '%s\n' "$name"
